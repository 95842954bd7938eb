"""The external sort: rows dealt to partitions of persons, put together, written as blocks."""
