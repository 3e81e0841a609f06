"""The steps that the command line and the DAGs both call, so that there is one way to do each thing."""
