"""The control plane of a very large cluster under simulation; see docs/scale.md."""
