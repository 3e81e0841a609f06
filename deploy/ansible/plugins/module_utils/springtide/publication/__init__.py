"""The publisher's folder: what is published, what holds on the fleet, who did what, and what stops a push.

Commands, jobs and plays all work on it, and the plays must do where the controller is not installed: this package
imports the standard library, and by relative names `springtide.errors` and `springtide.instants`, which do no more. The
Ansible collection has links to these files (deploy/ansible/plugins/module_utils/springtide).

    folder      publications, and the links to the newest and to what holds
    journal     a line for each event
    pause       nothing is published
    withdrawal  nothing is pushed
    waves, gate the order of a rollout, and whether it goes on
    ways        which way back undoes it
    record      what a play did
    lock        one push at a time
    files       files that are whole or not there
"""
