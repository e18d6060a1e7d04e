"""Key_Shared: which slot a message belongs to, who owns a slot, and which slots wait for their old owner."""
