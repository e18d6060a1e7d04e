"""The PROXY protocol of load balancers: the client's address in front of its first byte."""
