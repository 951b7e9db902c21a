"""Servers that stand for vendors: each follows the published description of the vendor's API."""
