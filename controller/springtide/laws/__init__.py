"""The control laws, one package each, and what they share.

`base` defines what a law is, `registry` lists them; everything else meets them through these two. A package holds its
`policy` (tunables), its pure `law`, its `rows` in the store and its `explain` (words). Beside them are its `benefit`
(measured), its `bundle` (what edges get of it), and the `interface` that ties all together.
"""
