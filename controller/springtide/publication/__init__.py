"""The publisher's folder: what is published, what holds on the fleet, and the journal of both."""
