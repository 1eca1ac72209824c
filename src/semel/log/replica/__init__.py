"""The journal in an object store: brokers write it one after the other, and each fences the one before. `slot` is the
format of an object, `journal` holds appended entries until a slot contains them, `writer` creates slots, `reader`
follows them and takes over. `checkpoints` keeps the state and the files in the store, `floor` says which checkpoint is
the newest, and `restore` starts from it. This package must never use a socket or see a request.
"""
