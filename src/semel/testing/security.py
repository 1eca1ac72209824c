"""Makes the certificates and the user for a test broker whose clients log in; the user may do everything.

    with semel.broker(security="SASL_SSL") as broker:
        producer = Producer(broker.client_settings)

For a broker in the event loop of a test: `semel.Broker(**security.settings)`, and `await security.begin(broker)` when
it has started. It must only be used for tests: the keys are unencrypted in a directory that only this user of the
machine can read, and that is removed at the end.
"""

from semel.log.throwaway_login import Login, Security, add_user

__all__ = ["Login", "Security", "add_user"]
