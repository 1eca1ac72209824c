"""A small payment service on semel: an API, a ledger that books the accepted payments, and a trial of both.

Copy it for your own service. README.md says where each guarantee comes from.
"""
