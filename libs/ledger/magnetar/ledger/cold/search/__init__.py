"""Search of offloaded ledgers for messages: reads only the row groups and columns that a condition needs.

    Condition --may_match--> row groups (statistics, Bloom filters) --rows_matching--> narrow columns first
              --> other columns of row groups with a match --> messages

`condition` and `bloom_filter` need no further package; the others need `magnetar-ledger[cold]`.
"""
