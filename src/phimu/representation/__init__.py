"""Sections 4.1 and 4.2: phi, mu and how they are learned; `seam` says what a representation is.

Another one is a file of its own and a line in the table below.
"""

# By the name that `--representation` takes; imported when asked for.
REPRESENTATIONS = {
    "contrastive": "phimu.representation.contrastive:Contrastive",
    "successor": "phimu.representation.successor:SuccessorFeatures",
    "gaussian": "phimu.representation.gaussian:GaussianDynamics",
    "spectral": "phimu.representation.spectral:Spectral",
    "score": "phimu.representation.score:ScoreMatching",
    "latent": "phimu.representation.latent:LatentVariable",
}
