"""Guides for whoever sets a platform up: what to do there, and what of it is done."""
