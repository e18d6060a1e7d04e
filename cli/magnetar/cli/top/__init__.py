"""`magnetar top`: a live table of a cluster, and its plain form for pipes."""
