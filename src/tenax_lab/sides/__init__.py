"""The sides that Tenax is compared with, each in a process of its own."""
