"""Key_Shared: delivery by slot, entries that wait for their consumer, and unacknowledged entries by slot."""
