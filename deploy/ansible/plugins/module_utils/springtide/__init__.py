"""Files of the controller that plays need too: links, so that there is one of each."""
