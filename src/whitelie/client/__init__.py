"""The client of the decision service for Python: it flips on the device and reports later.

It keeps the contract in clients/CONTRACT.md, and needs the standard library only.
"""

from whitelie.client.client import Choice, Client
from whitelie.client.ledger import Cap
from whitelie.client.storage import Folder, Memory, Storage
from whitelie.client.transport import HTTP, Answer, InProcess, NoAnswer, Transport
from whitelie.client.warn_once import WhitelieWarning

__all__ = [
    "HTTP",
    "Answer",
    "Cap",
    "Choice",
    "Client",
    "Folder",
    "InProcess",
    "Memory",
    "NoAnswer",
    "Storage",
    "Transport",
    "WhitelieWarning",
]
