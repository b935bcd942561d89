mod packets;
