"""The daemon: wires the rooms together and talks to the world."""
