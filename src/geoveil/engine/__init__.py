"""The same work on several cores or machines: a table is cut into parts, each gives one answer, answers add.

An engine (:class:`~geoveil.engine.engines.Engine`) only says where the parts are worked on. What is
done with a part, and what comes of all of them, is the same for all engines: seeded noise belongs to
the rows of a file, not to the process that draws it. Nothing above this package knows of an engine.
"""
