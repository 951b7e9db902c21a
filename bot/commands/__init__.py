"""What people type behind a slash, one module a subject, and the one table of all of it."""
