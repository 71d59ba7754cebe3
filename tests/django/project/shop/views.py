from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_POST

from shop.jobs import app
from shop.models import Order


@require_POST
def create_order(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        order = Order.objects.create(item=request.POST["item"])
        job = app.enqueue("send-receipt", {"order_id": order.pk}, connection=connection)
    return JsonResponse({"order": order.pk, "job": str(job.id)}, status=201)
