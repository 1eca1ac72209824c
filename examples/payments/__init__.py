"""A small payment service on semel: an API, a ledger that books what the API accepted, and a trial of both.

It is made to be copied. README.md says where each guarantee comes from.
"""
