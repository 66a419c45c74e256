"""The HTTP door of runners."""
