"""Common parts of the HTTP ports of brokers and discovery; needs the extra `http`."""
