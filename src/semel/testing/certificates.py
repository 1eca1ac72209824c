"""Certificates for tests, signed by an authority that nobody else trusts.

    authority = Authority(tmp_path)
    broker_files = authority.issue("broker", "localhost", "127.0.0.1")

It needs the package `cryptography`. The keys are unencrypted in the directory that the test names.
"""

from semel.log.throwaway_certificates import Authority, Files

__all__ = ["Authority", "Files"]
