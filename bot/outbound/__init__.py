"""What goes out: the log shown in threads, and the one door every message leaves by."""
