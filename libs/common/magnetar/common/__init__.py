"""What every Magnetar room shares: names, errors, configuration, the wire codec, the metadata store."""
