"""`python -m dashboards`: writes dashboards/json anew."""

from dashboards.generate import FOLDER, write

write()
print(f"{len(list(FOLDER.glob('*.json')))} dashboards in {FOLDER}")
