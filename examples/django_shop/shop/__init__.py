"""A shop: an order is made once, told of once, and billed once."""
