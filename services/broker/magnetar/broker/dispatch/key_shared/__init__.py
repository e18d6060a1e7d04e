"""Key_Shared: the slot of a message, the owner of a slot, and slots that wait for their old owner."""
