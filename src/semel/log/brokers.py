"""For a program that runs a broker: the broker, its settings, and the errors with which it may end."""

from semel.log.broker.broker import Broker
from semel.log.broker.certificates import CertificatesRefused, ClientAuth, TlsSettings
from semel.log.broker.failure import BrokerCutOff, BrokerFailed, BrokerFenced
from semel.log.broker.limits import Limits
from semel.log.broker.metrics_server import serve_metrics
from semel.log.broker.security_log import SecurityLog
from semel.log.replica.cache import CACHE_BYTES, CACHE_BYTES_MIN
from semel.log.security.tokens import ALGORITHMS_DEFAULT, TokenSettings, TokensRefused
