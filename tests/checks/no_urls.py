"""A site without pages."""

urlpatterns: list[object] = []
