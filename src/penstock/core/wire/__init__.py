"""What goes over the wire: the service's requests and answers, shared by the service and the client.

Requests refuse unknown fields, so that a typo is not silently dropped. Answers may grow.
"""
