from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=100, unique=True)
    details = models.JSONField(default=dict)
    placed_at = models.DateTimeField(auto_now_add=True)
    receipt_sent = models.BooleanField(default=False)
