"""What the HTTP ports of brokers and of discovery have in common; needs the extra `http`."""
