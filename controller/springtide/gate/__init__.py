"""After a wave: whether new connections of the changed edges fare worse than before."""
