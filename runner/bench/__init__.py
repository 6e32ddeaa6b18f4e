"""What `rlt-fsm bench` measures: arms over one list of requests, and steps against floors."""
