"""Python tasks of Spark in tests begin with this: they know `faulty://`, files that fail on demand."""

import fsspec

fsspec.register_implementation("faulty", "tests.spark.faulty_store.FaultyFileSystem", clobber=True)
