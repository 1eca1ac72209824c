"""The journal in a store of objects: brokers write it one after the other, and each fences the one before.

`slot` is the form of an object, `journal` holds what was appended until a slot takes it, `writer` creates slots,
`reader` follows them and takes over. `checkpoints` keeps the state and the files in the store, `floor` says which
checkpoint is the newest, and `restore` starts from it. This room must never know a socket or a request.
"""
