"""What people type in a shell: commands of `nod`, and how they reach the one at work."""
