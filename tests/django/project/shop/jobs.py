from django.conf import settings
from django.db import close_old_connections

from penstock import Penstock

app = Penstock(settings.PENSTOCK_DATABASE_URL)


@app.job(key="send-receipt", max_attempts=3, timeout=60)
def send_receipt(order_id: int) -> None:
    from shop.models import Order

    close_old_connections()
    Order.objects.filter(pk=order_id).update(receipt_sent=True)
