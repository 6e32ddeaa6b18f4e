"""The driver's own connection below one of SQLAlchemy's: for what must stand outside a transaction,
and for what is done for every row.
"""

import sqlite3
from typing import cast

from sqlalchemy import Connection


def driver_of(connection: Connection) -> sqlite3.Connection:
    """The driver's connection; statements on it belong to the transaction that is open."""
    return cast("sqlite3.Connection", connection.connection.driver_connection)
