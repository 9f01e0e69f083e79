"""The collection service: campaigns, reports, rounds and estimates over HTTP."""
