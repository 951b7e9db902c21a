"""What comes in: taken once, by whom and where, and given to the session it belongs to."""
