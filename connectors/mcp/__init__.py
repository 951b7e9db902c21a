"""Servers of the Model Context Protocol: set up, kept at work, and their tools made safe."""
