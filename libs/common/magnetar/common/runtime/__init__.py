"""Time, disk and blocking work as parameters, so that the simulator can drive the real code."""
