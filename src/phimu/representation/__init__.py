"""Sections 4.1 and 4.2: phi, mu and how they are learned by noise contrastive estimation."""
