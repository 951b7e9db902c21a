"""Turns the Markdown that models write into what each platform shows; text in, messages out."""
