"""What people see of a running dispatcher over HTTP: read-only JSON at DISPATCHER_DASHBOARD_ADDRESS.

GET /api/v1/tasks/{id}/explain ─▶ server.py ─▶ asking.py: row from Postgres, last cycle from memory ─▶ explain
"""
