"""Appendix B: planning on a fixed phi. Nothing here knows how phi is learned."""
